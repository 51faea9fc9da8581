"""What E2B has in the way of each TCP connection of a machine, on its host: takes every one, looks for a name in what comes first, decides by the
lists of the machine's network, and goes on directly or by the SOCKS5 proxy that was named.

Each line of standard input is such a network as JSON, answered with `set`; `listens TCP UDP` with the ports comes first. Ends with its input. By port
80 the name is that of the `Host` field, by port 443 that of the TLS hello, and by any other there is none. A name that is allowed is gone by, whatever
address was dialled; else the address decides. Names in the list open the name server 8.8.8.8; what stands for it here knows one address for all names.
With `onlyPort` an allowed address is open at that port alone, since this host has other services than the gateway.
"""
import asyncio
import ipaddress
import json
import os
import socket
import struct
import sys

SO_ORIGINAL_DST = 80
NAME_SERVER = '8.8.8.8'
INTERNAL = [ipaddress.ip_network(each) for each in ('0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16')]
PATIENCE_S = 10
network = {}


def split_list(entries):
    addresses, names = [], []
    for entry in entries:
        try:
            addresses.append(ipaddress.ip_network(entry))
        except ValueError:
            names.append(entry)
    return addresses, names


def is_name_allowed(name, patterns):
    name = name.lower()
    return any(each == '*' or each.lower() == name or (each.startswith('*.') and name.endswith(each[1:].lower())) for each in patterns)


def decide(name, address, port):
    """What to dial: a name, an address, or nothing."""
    allowed, names = split_list(network.get('allowOut', []))
    denied, _ = split_list(network.get('denyOut', []))
    only = network.get('onlyPort')
    if names:
        allowed.append(ipaddress.ip_network(NAME_SERVER))
    place = ipaddress.ip_address(address)
    if not network.get('egressProxy') and any(place in each for each in INTERNAL):
        return None
    if name and is_name_allowed(name, names):
        return name
    if any(place in each for each in allowed):
        return address if only is None or only == port else None
    return None if any(place in each for each in denied) else address


def host_of(head):
    for line in head.split(b'\r\n')[1:]:
        field, _, value = line.partition(b':')
        if field.strip().lower() == b'host':
            host = value.strip().decode('latin1')
            return host if host.startswith('[') or ':' not in host else host.rsplit(':', 1)[0]
    return ''


def server_name_of(record):
    """The name in a TLS hello; nothing for what is none. RFC 8446 4.1.2, RFC 6066 3."""
    try:
        if record[0] != 22 or record[5] != 1:
            return ''
        at = 43
        at += 1 + record[at]
        at += 2 + struct.unpack_from('>H', record, at)[0]
        at += 1 + record[at]
        end = at + 2 + struct.unpack_from('>H', record, at)[0]
        at += 2
        while at + 4 <= end:
            kind, length = struct.unpack_from('>HH', record, at)
            if kind == 0:
                size = struct.unpack_from('>H', record, at + 7)[0]
                return record[at + 9 : at + 9 + size].decode('latin1')
            at += 4 + length
    except (IndexError, struct.error):
        pass
    return ''


async def first_words(reader, port):
    """What was read, and the name in it."""
    if port == 80:
        head = b''
        while b'\r\n\r\n' not in head and len(head) < 4096:
            piece = await reader.read(4096)
            if not piece:
                break
            head += piece
        return head, host_of(head)
    if port == 443:
        start = await reader.read(5)
        if len(start) < 5 or start[0] != 22:
            return start, ''
        rest = await reader.readexactly(struct.unpack_from('>H', start, 3)[0])
        return start + rest, server_name_of(start + rest)
    return b'', ''


async def through_socks(proxy, target, port):
    """RFC 1928, RFC 1929."""
    host, _, proxy_port = proxy['address'].rpartition(':')
    reader, writer = await asyncio.open_connection(host, int(proxy_port))
    try:
        name, password = (proxy.get(each, '').encode() for each in ('username', 'password'))
        writer.write(b'\x05\x02\x00\x02' if name else b'\x05\x01\x00')
        method = (await reader.readexactly(2))[1]
        if method == 2:
            writer.write(bytes([1, len(name)]) + name + bytes([len(password)]) + password)
            if (await reader.readexactly(2))[1] != 0:
                raise ConnectionError('refused')
        elif method != 0:
            raise ConnectionError('no method')
        try:
            where = b'\x01' + socket.inet_aton(str(ipaddress.IPv4Address(target)))
        except ValueError:
            where = b'\x03' + bytes([len(target)]) + target.encode('latin1')
        writer.write(b'\x05\x01\x00' + where + struct.pack('>H', port))
        answer = await reader.readexactly(4)
        await reader.readexactly({1: 4, 4: 16}[answer[3]] + 2)
        if answer[1] != 0:
            raise ConnectionError('refused')
        return reader, writer
    except BaseException:
        writer.close()
        raise


async def carry(reader, writer):
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def serve(reader, writer):
    onward = None
    try:
        raw = writer.get_extra_info('socket').getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16)
        port, address = struct.unpack_from('>H', raw, 2)[0], socket.inet_ntoa(raw[4:8])
        words, name = await asyncio.wait_for(first_words(reader, port), PATIENCE_S)
        target = decide(name, address, port)
        if target is None:
            return
        proxy = network.get('egressProxy')
        there, onward = await asyncio.wait_for(through_socks(proxy, target, port) if proxy else asyncio.open_connection(target, port), PATIENCE_S)
        onward.write(words)
        await asyncio.gather(carry(reader, onward), carry(there, writer))
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, KeyError, UnicodeError):
        pass
    finally:
        for each in (writer, onward):
            if each is not None:
                each.close()


class NameServer(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, question, peer):
        addresses, names = split_list(network.get('allowOut', []))
        if len(question) < 17 or not (names or any(ipaddress.ip_address(NAME_SERVER) in each for each in addresses)):
            return
        end = question.index(b'\0', 12) + 5
        is_address = question[end - 4 : end - 2] == b'\0\1'
        head = question[:2] + b'\x81\x80\0\1' + (b'\0\1' if is_address else b'\0\0') + b'\0\0\0\0'
        answer = b'\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4' + socket.inet_aton('203.0.113.80') if is_address else b''
        self.transport.sendto(head + question[12:end] + answer, peer)


async def main():
    global network
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(serve, '0.0.0.0', 0)
    names, _ = await loop.create_datagram_endpoint(NameServer, ('0.0.0.0', 0))
    print('listens', server.sockets[0].getsockname()[1], names.get_extra_info('sockname')[1], flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        network = json.loads(line)
        print('set', flush=True)
    # Whatever is open ends with it.
    os._exit(0)


asyncio.run(main())
