"""A small hub: the HTTP calls that an upload makes, served from this process; remembers what it was sent."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """What was uploaded."""

    address: str = ""
    made: dict[str, Any] = field(default_factory=dict)
    """The request that made the repository."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Files of the commit, by their path."""
    tokens: set[str | None] = field(default_factory=set)
    commits: int = 0
    stored: dict[str, bytes] = field(default_factory=dict)
    """Large files, by their sha256."""


@contextmanager
def serve() -> Iterator[Hub]:
    """A hub at a free port of this machine."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def answer(self, content: Any, status: int = 200) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def do_HEAD(self) -> None:
            self.answer({})

        def do_GET(self) -> None:
            self.answer({"error": "not found"}, 404)

        def do_PUT(self) -> None:
            hub.stored[self.path.rpartition("/")[2]] = self.body()
            self.answer({})

        def do_POST(self) -> None:
            data = self.body()
            if self.path == "/api/repos/create":
                hub.tokens.add(self.headers.get("Authorization"))
                hub.made = json.loads(data)
                self.answer({"url": f"{hub.address}/{hub.made['organization']}/{hub.made['name']}"})
            elif "/preupload/" in self.path:
                names = [one["path"] for one in json.loads(data)["files"]]
                modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
                self.answer(
                    {"files": [{"path": n, "uploadMode": m, "shouldIgnore": False} for n, m in modes.items()]}
                )
            elif self.path.endswith("/info/lfs/objects/batch"):
                objects = [
                    {**one, "actions": {"upload": {"href": f"{hub.address}/store/{one['oid']}"}}}
                    for one in json.loads(data)["objects"]
                ]
                self.answer({"transfer": "basic", "objects": objects})
            elif "/commit/" in self.path:
                self.commit(data)
            else:
                self.answer({"errors": [], "warnings": []})

        def commit(self, data: bytes) -> None:
            for line in map(json.loads, data.decode().splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    hub.files[value["path"]] = hub.stored[value["oid"]]
            hub.commits += 1
            url = f"{hub.address}/{hub.made['organization']}/{hub.made['name']}/commit/1"
            self.answer({"success": True, "commitOid": "1" * 40, "commitUrl": url})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
