"""What goes over HTTP: requests and answers of the native API, for the server and for its client."""
