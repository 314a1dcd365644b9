// Shows the description with Swagger UI.
"use strict";

window.SwaggerUIBundle({
  url: "/docs/description.json",
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "none",
  validatorUrl: null, // else it would ask a server elsewhere whether the description is valid
});
