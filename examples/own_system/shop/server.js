// The page of a product, and its order: asks the catalog and hands orders over.
const express = require("express");

const CATALOG = process.env.CATALOG_URL;
const ORDERS = process.env.ORDERS_URL;
const app = express();
app.use(express.json());

async function ask(url, options) {
  const answer = await fetch(url, { signal: AbortSignal.timeout(2000), ...options });
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  return answer.json();
}

app.get("/healthz", (_, res) => res.json({ ok: true }));

app.get("/products/:id", async (req, res) => {
  const product = await ask(`${CATALOG}/products/${req.params.id}`);
  res.json({ ...product, page: `Product ${product.name}` });
});

app.post("/orders", async (req, res) => {
  const product = await ask(`${CATALOG}/products/${req.body.product}`);
  const order = await ask(`${ORDERS}/orders`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ product: product.id, pieces: req.body.pieces }),
  });
  res.status(201).json(order);
});

app.use((error, _req, res, _next) => {
  console.log(JSON.stringify({ level: "error", msg: `request failed: ${error.message}` }));
  res.status(502).json({ error: error.message });
});

app.listen(8080, () => console.log(JSON.stringify({ level: "info", msg: "listening" })));
