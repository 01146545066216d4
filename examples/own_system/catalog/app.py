"""Products, from the cache, else from the database."""

import json
import os
from contextlib import asynccontextmanager

import asyncpg
import redis.asyncio
from fastapi import FastAPI, HTTPException

CACHED_S = 5


@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.database = await asyncpg.create_pool(
        os.environ["DATABASE_URL"], min_size=1, max_size=8, command_timeout=2
    )
    app.state.cache = redis.asyncio.from_url(os.environ["CACHE_URL"], socket_timeout=1, socket_connect_timeout=1)
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/healthz")
async def healthz():
    return {"ok": True}


@app.get("/products/{number}")
async def product(number: int):
    key = f"product:{number}"
    if (kept := await app.state.cache.get(key)) is not None:
        return json.loads(kept)
    row = await app.state.database.fetchrow("SELECT id, name, price FROM products WHERE id = $1", number)
    if row is None:
        raise HTTPException(404, f"there is no product {number}")
    found = {"id": row["id"], "name": row["name"], "price": float(row["price"])}
    await app.state.cache.set(key, json.dumps(found), ex=CACHED_S)
    return found
