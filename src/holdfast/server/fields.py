"""What the OpenAPI document says in words: of nouns, fields, headers; and an example of each body."""

from __future__ import annotations

from typing import Any

TAGS = {
    "queues": "Make, configure, pause, drop and purge queues.",
    "messages": "Send messages, look at them, delete them.",
    "claims": "Claim messages, settle them, have them pushed.",
    "reports": "Figures, reasons, dead letters and the archive.",
    "logs": "Read records in their order, as often as you like.",
    "keys": "API keys: make, list, rotate, revoke.",
    "logins": "Exchange a key for a token that counts for a quarter of an hour.",
    "schemas": "What the payloads of a queue have to look like.",
    "operations": "Is the server well; upkeep; rate limiters.",
    "documents": "This description.",
}

PATH: dict[str, dict[str, Any]] = {
    "queue": {
        "description": "The name of a queue.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,200}$"},
        "example": "orders",
    },
    "id": {
        "description": "A number of up to 63 bits.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "example": "1099511627777",
    },
    "file": {"description": "A file of the page.", "schema": {"type": "string"}, "example": "start.js"},
}

TOKEN_ALONE = "The messages; the token alone stands for everything that was handed out together."
ASKED = {
    "after": "Only what comes behind this id or sequence number: the last one of the page before.",
    "before": "All records before this sequence number.",
    "body": "Bytes, in base64, in place of a payload.",
    "bucket": "How much time each figure covers: 1 minute, 5 minutes, 1 hour or 1 day.",
    "budget": "How long to work at most: 1 ms to 10 s.",
    "burst": "How many tokens the bucket holds; by default what comes in a second.",
    "CreateKey.burst": "How many requests are let in at once after a pause; by default those of a second.",
    "consumer": "The name of a consumer, for reports and to find its claims again.",
    "content_type": "What the body is.",
    "correlation_id": "A UUID that goes with the message.",
    "delay": "How long until the message is ready.",
    "Nack.delay": "How long until it is delivered again; by default what the queue's backoff says.",
    "deliver_at": "When the message is ready; in place of a delay.",
    "error": "What went wrong; kept as the message's last error.",
    "expires_at": "When the message ends by itself; in place of a ttl.",
    "expires_in": "How long the key is valid, up to 10 years; without it, without end.",
    "filter": "Which dead letters: by error, tag, dead_before, dead_after.",
    "from": "From when on.",
    "grace": "How long the old secret stays valid, up to 7 days; without it, it ends at once.",
    "headers": "An object that goes with the message, up to 64 KiB.",
    "how": "`retry` delivers the message that blocks again, `skip` moves it to the dead letters.",
    "idempotency_key": "A live message with the same one and the same payload is not sent a second time.",
    "ids": "The messages.",
    "Settle.ids": TOKEN_ALONE,
    "Nack.ids": TOKEN_ALONE,
    "Extend.ids": TOKEN_ALONE,
    "Redrive.ids": "The dead letters; without it those that the filter names, or all.",
    "key": "At most one message of a key waits in a queue: sending again replaces it.",
    "Unblock.key": "The ordering key; a strict queue has none.",
    "lease": "How long the messages are held, from now: 100 ms to 24 h. By default what the queue says.",
    "limit": "How many at most: 1 to 10,000.",
    "limiter": "The name of a bucket.",
    "definition": "A JSON Schema, or an Avro schema.",
    "kind": "json (JSON Schema, by default) or avro.",
    "compatibility": "Which changes are allowed: none, backward, forward or full.",
    "expected_version": "The version that is to be in force until then; 0 for no schema.",
    "payloads": "What would be sent.",
    "max": "How many messages at most: 1 to 1,000.",
    "max_deliveries": "How often the message is delivered at most; 0 means without end.",
    "messages": "1 to 1,000 messages; all are sent, or none.",
    "name": "Whose key it is, or for what: 1 to 64 characters.",
    "ordering_key": "Messages with the same one are delivered one after the other.",
    "outcomes": "How they ended: done, expired, failed, discarded.",
    "partial": "Whether fewer tokens will do.",
    "password": "The key.",
    "payload": "Any JSON value.",
    "pipeline": "The name of a pipeline.",
    "priority": "0 to 10; higher ones are delivered first.",
    "queue": "Only this queue.",
    "queues": "Names of queues, in which * stands for anything: 1 to 100 of them; by default all.",
    "rate": "How many tokens come in a second.",
    "CreateKey.rate": "How many requests a second are let in; without it, any number.",
    "scopes": "One or more of send, consume, read, admin.",
    "seqs": "Sequence numbers of records.",
    "since": "From when on.",
    "state": "ready, scheduled, blocked, in_flight, dead or archive.",
    "states": "One or more of ready, scheduled, blocked, in_flight, dead, archive.",
    "strict": "Refuse the whole call if the token does not hold all of it any more.",
    "tag": "A word that goes with the message.",
    "LogDelete.tag": "All records that have this tag.",
    "target": "Another queue than the one they came from.",
    "to": "Until when.",
    "token": "The token of a claim: what shows that you still hold its messages.",
    "ttl": "How long the message lives.",
    "unreadable_only": "Only what cannot be read.",
    "until": "Until when.",
    "username": "Any name, or none.",
    "wait": "How long to wait for a message if there is none: 0 to 30 seconds.",
    "want": "How many tokens.",
}

ANSWERED = {
    "blocked_lines": "How many ordering keys wait behind a dead message.",
    "body": "Bytes, in base64; null where there is a payload.",
    "claimed_at": "When it was claimed for the last time.",
    "config": "What was configured.",
    "consumer": "Who holds it, or held it.",
    "counters": "How many messages went which way, since the queue was made.",
    "deadline": "When the lease ends.",
    "deliveries": "How often it was delivered, this time included.",
    "depth": "All that are not done.",
    "due_at": "When it will be ready.",
    "effective": "What is in force, defaults included.",
    "ended_at": "When it ended.",
    "enqueued_at": "When it was sent.",
    "exact": "Whether the figures are counted, or estimated.",
    "expires_at": "When it ends by itself.",
    "failures": "How often it failed.",
    "finding": "The kind of reason.",
    "freed": "How many messages are ready again.",
    "from_seq": "The first sequence number of the range.",
    "granted": "How many tokens were taken.",
    "head": "The message that the others wait for.",
    "ids": "The messages, in the order of the request.",
    "NewKey.key": "The secret: it is told this once, and stored nowhere.",
    "last_error": "What the last nack said.",
    "last_used_at": "When a server last let it in, to half a minute.",
    "more": "Whether there may be more: call again.",
    "new_id": "The id that it has now.",
    "oldest_age": "How long the oldest message has been ready, in seconds.",
    "origin": "Where a message that was moved came from: root_id is the id that it was sent with.",
    "payload": "The JSON value, digit for digit; null where there is a body.",
    "prefix": "How the secret begins.",
    "queues": "Names of queues, in which * stands for anything.",
    "QueueInfoList.queues": "The queues.",
    "reason": "dead (it waits for unblock), in_flight, scheduled or ready.",
    "SchemaFinding.index": "Which of the payloads, counted from 0; null: the definition.",
    "SchemaFinding.path": "Where, as in payload.items[0].price or definition.properties.id.",
    "SchemaFinding.reason": "What is wrong.",
    "QueueSchema.version": "Versions count from 1.",
    "QueueSchema.kind": "json (JSON Schema) or avro.",
    "compatibility": "Which changes are allowed: none, backward, forward or full.",
    "dropped_at": "Since then it is not in force; null: it was until the next version came, or is.",
    "remaining": "How many tokens are left.",
    "remedy": "What to do.",
    "retry_after": "In how many seconds to ask again, if nothing was granted.",
    "settled": "The messages that the token held.",
    "severity": "How bad it is.",
    "skipped": "The messages that the token did not hold any more.",
    "state": "Where it is.",
    "to_seq": "The last sequence number of the range.",
    "token": "What shows that you hold the message: pass it to ack, nack, release, extend.",
    "trimmed": "How many records are gone.",
    "Token.token": "What stands for the key, as Authorization: Bearer, for a quarter of an hour.",
}

HEADERS: dict[str, list[dict[str, Any]]] = {
    "send": [
        {
            "name": "Idempotency-Key",
            "description": "The idempotency_key of the message; of several, each has a number behind it.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 190},
        }
    ],
    "configure_queue": [
        {
            "name": "If-Match",
            "description": "The ETag of the configuration to change; 412 if it is another by now.",
            "schema": {"type": "string"},
        }
    ],
    "work": [
        {
            "name": "Last-Event-ID",
            "description": "What browsers send when they connect again; nothing depends on it.",
            "schema": {"type": "string"},
        }
    ],
}

METRICS = "Counters, gauges and histograms, in the text format of Prometheus."
STREAM = """\
Server-sent events, until the client or the server goes. `message`: its `data` is what a claim answers with
for a message, its `id` the message's. Settle it with its token and `ids: [id]`: the token alone settles
everything that was handed out together. `error`: the stream ends, and `data` is an error as any other. `end`:
the server is shutting down; connect again. A comment every 15 s shows that the stream is alive."""

EXAMPLES: dict[str, Any] = {
    "create_queue": {"lease": "1 min", "max_deliveries": 3},
    "configure_queue": {"max_deliveries": 10, "lease": None},
    "configure_defaults": {"lease": "1 min"},
    "purge": {"states": ["ready", "scheduled"]},
    "send": {
        "messages": [
            {"payload": {"order": 42}, "priority": 5, "tag": "eu"},
            {"body": "aGVsbG8=", "content_type": "text/plain", "delay": "5 min"},
        ]
    },
    "discard": {"ids": ["1099511627777"]},
    "discard_key": {"key": "order-42"},
    "claim": {"max": 10, "lease": "2 min", "consumer": "worker-1", "wait": 20},
    "next": {"token": "1099511627779", "max": 10},
    "ack": {"token": "1099511627779"},
    "release": {"token": "1099511627779", "ids": ["1099511627777"]},
    "nack": {"token": "1099511627779", "error": "the address is unknown", "delay": "30 s"},
    "extend": {"token": "1099511627779", "lease": "10 min"},
    "holders": {"ids": ["1099511627777"]},
    "unblock": {"key": "customer-7", "how": "retry"},
    "redrive": {"filter": {"error": "timeout"}, "limit": 100},
    "replay": {"from": "2040-01-01T00:00:00Z", "to": "2040-01-02T00:00:00Z", "outcomes": ["done"]},
    "log_delete": {"before": "1000"},
    "create_key": {"name": "shop", "scopes": ["send"], "queues": ["orders*"], "expires_in": "90 days"},
    "rotate_key": {"grace": "1 hour"},
    "login": {"username": "me", "password": "hf_…"},
    "maintain": {"budget": "500 ms"},
    "repair": {"unreadable_only": True},
    "set_schema": {"definition": {"type": "object", "required": ["order"]}, "compatibility": "backward"},
    "check_schema": {"payloads": [{"order": 1}]},
    "take_rate": {"limiter": "mails", "rate": 10, "burst": 100},
}
