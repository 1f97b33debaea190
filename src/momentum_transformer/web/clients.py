"""Who asks, as far as fairness goes: an address, or the network that one household or machine has of IPv6."""

import ipaddress

from starlette.types import Scope

LOCAL = "127.0.0.1"  # also that of everybody behind a proxy on this machine
NETWORK = 64  # bits of an IPv6 address that tell clients apart


def client_of(scope: Scope) -> str:
    return client(scope["client"][0]) if scope.get("client") else ""


def client(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # no network
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found.is_loopback:
        return LOCAL
    return str(ipaddress.ip_network((int(found), NETWORK), strict=False))
