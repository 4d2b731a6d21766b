"""A machine for trying the driver: it remembers the image of each service, and says that it is healthy. Usage: python3 machine.py PORT"""

import http.server
import json
import sys

images = {}


class Machine(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        if self.path == "/healthz":
            self.answer(200, {})
        elif self.path in images:
            self.answer(200, {"image": images[self.path], "healthy": True, "failed": False})
        else:
            self.answer(404, {})

    def do_PUT(self):
        images[self.path] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["image"]
        self.answer(200, {})


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Machine).serve_forever()
