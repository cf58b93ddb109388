"""A gateway without Ray: it says that it is connected, and nothing more. Run with `python -m`, and a socket."""

import socket
import sys

from tidemill.engine.ray import protocol

if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rb") as lines:
        lines.readline()
        connection.sendall(protocol.encode_line(protocol.Connected("one")))
        lines.read()  # until the node closes the connection
