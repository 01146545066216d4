"""The call trees that the tests of causes break."""

from __future__ import annotations

from .cascade import Call

DATABASE = Call("database", "SELECT rows", own_ms=4, way="store")


def deep() -> dict[Call, float]:
    """gateway > orders > payment > bank, and browsing beside it that never gets there."""
    bank = Call("bank", "POST /transfer", calls=(DATABASE,))
    payment = Call("payment", "POST /charge", calls=(bank, DATABASE))
    orders = Call("orders", "POST /orders", calls=(DATABASE, payment))
    catalogue = Call("catalogue", "GET /products", calls=(DATABASE,))
    return {
        Call("gateway", "POST /checkout", calls=(catalogue, orders)): 4.0,
        Call("gateway", "GET /browse", calls=(catalogue,)): 8.0,
        Call("gateway", "GET /noise", calls=(Call("weather", "GET /weather", own_ms=20),)): 4.0,
    }


def diamond() -> dict[Call, float]:
    """gateway > left and right > base: both arms pass on half of what base adds."""
    base = Call("base", "GET /base", calls=(DATABASE,))
    left = Call("left", "GET /left", calls=(base,))
    right = Call("right", "GET /right", calls=(base,))
    return {Call("gateway", "GET /both", calls=(left, right)): 8.0}


def fan_out() -> dict[Call, float]:
    """gateway > five leaves at once."""
    leaves = tuple(Call(f"leaf{n}", f"GET /leaf/{n}", own_ms=15) for n in range(5))
    return {Call("gateway", "GET /page", calls=leaves, parallel=True): 8.0}


def shared_database() -> dict[Call, float]:
    """Two services and a third that has nothing to do with them; the two ask one database, which traces its queries."""
    rows = Call("rows", "SELECT rows", own_ms=5)
    stock, prices = Call("stock", "GET /stock", calls=(rows,)), Call("prices", "GET /prices", calls=(rows,))
    return {
        Call("gateway", "GET /stock", calls=(stock,)): 6.0,
        Call("gateway", "GET /prices", calls=(prices,)): 6.0,
        Call("gateway", "GET /news", calls=(Call("news", "GET /news"),)): 6.0,
    }


def hub() -> dict[Call, float]:
    """gateway > three busy and five rarely asked services, which all ask hub; and browsing that never gets there."""
    asked = Call("hub", "GET /hub", calls=(DATABASE,))
    busy = {
        Call("gateway", f"GET /busy/{n}", calls=(Call(f"busy{n}", "GET /", calls=(asked,)),)): 3.0 for n in range(3)
    }
    rare = {
        Call("gateway", f"GET /rare/{n}", calls=(Call(f"rare{n}", "GET /", calls=(asked,)),)): 0.15 for n in range(5)
    }
    return busy | rare | {Call("gateway", "GET /browse", calls=(Call("catalogue", "GET /products"),)): 4.0}


def queue() -> dict[Call, float]:
    """gateway > orders ~ message ~> shipping, which calls a carrier."""
    carrier = Call("carrier", "POST /parcel", own_ms=12)
    shipping = Call("shipping", "orders", calls=(carrier,), way="message")
    orders = Call("orders", "POST /orders", calls=(DATABASE, shipping))
    return {Call("gateway", "POST /checkout", calls=(orders,)): 6.0}
