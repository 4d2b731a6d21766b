"""Verifies a webhook of Lockstep as a receiver does: with the library of Standard Webhooks. A request is read from the standard input, as
{"headers": {…}, "body": "…"}; WEBHOOK_SECRET is what the channel signs with. Of a server, these are the headers and the raw body."""
import json
import os
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

request = json.load(sys.stdin)
try:
    event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(request["body"], request["headers"])
    print("valid", request["headers"]["webhook-id"], event["type"])
except WebhookVerificationError as e:
    print("invalid:", e)
    sys.exit(1)
