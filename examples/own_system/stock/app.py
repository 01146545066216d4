"""How many pieces there are of each product."""

import os
from contextlib import asynccontextmanager

import asyncpg
from fastapi import FastAPI, HTTPException


@asynccontextmanager
async def lifespan(app: FastAPI):
    app.state.database = await asyncpg.create_pool(
        os.environ["DATABASE_URL"], min_size=1, max_size=8, command_timeout=2
    )
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/healthz")
async def healthz():
    return {"ok": True}


@app.post("/stock/{product}/reserve")
async def reserve(product: int, pieces: int):
    left = await app.state.database.fetchval(
        "UPDATE stock SET pieces = pieces - $2 WHERE product = $1 AND pieces >= $2 RETURNING pieces", product, pieces
    )
    if left is None:
        raise HTTPException(409, f"not enough of product {product}")
    return {"product": product, "left": left}
