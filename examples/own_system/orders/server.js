// Takes orders: reserves the stock, writes the order, tells the worker over the queue.
const express = require("express");
const { connect, headers, JSONCodec } = require("nats");
const { Pool } = require("pg");
const { context, propagation, trace, SpanKind } = require("@opentelemetry/api");

const database = new Pool({ connectionString: process.env.DATABASE_URL, max: 8, query_timeout: 2000 });
const codec = JSONCodec();
const tracer = trace.getTracer("orders");
const app = express();
app.use(express.json());

function publish(queue, subject, message) {
  return tracer.startActiveSpan(`publish ${subject}`, { kind: SpanKind.PRODUCER }, (span) => {
    const carrier = headers();
    propagation.inject(context.active(), carrier, { set: (into, key, value) => into.set(key, value) });
    queue.publish(subject, codec.encode(message), { headers: carrier });
    span.end();
  });
}

async function main() {
  const queue = await connect({ servers: process.env.QUEUE_URL, maxReconnectAttempts: -1 });

  app.get("/healthz", (_, res) => res.json({ ok: true }));

  app.post("/orders", async (req, res) => {
    const { product, pieces } = req.body;
    const reserved = await fetch(`${process.env.STOCK_URL}/stock/${product}/reserve?pieces=${pieces}`, {
      method: "POST",
      signal: AbortSignal.timeout(1500),
    });
    if (!reserved.ok) throw new Error(`stock answered ${reserved.status}`);
    const { rows } = await database.query(
      "INSERT INTO orders (product, pieces) VALUES ($1, $2) RETURNING id", [product, pieces]);
    publish(queue, "orders.placed", { order: rows[0].id });
    res.status(201).json({ order: rows[0].id });
  });

  app.use((error, _req, res, _next) => {
    console.log(JSON.stringify({ level: "error", msg: `order failed: ${error.message}` }));
    res.status(500).json({ error: error.message });
  });

  app.listen(8080, () => console.log(JSON.stringify({ level: "info", msg: "listening" })));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
