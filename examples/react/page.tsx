import { streamerCollectionOptions, StreamerError } from "@mongostream/streamer";
import { createCollection } from "@tanstack/db";
import { eq, useLiveQuery } from "@tanstack/react-db";
import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";

interface Order {
  _id: unknown;
  customer?: { name: string };
  total: number;
  status: string;
}

const statuses = ["placed", "paid", "packed", "shipped", "delivered"];
const parameters = new URLSearchParams(location.search);

// Every component that queries this collection shares one live query of the node.
const orders = createCollection(
  streamerCollectionOptions<Order>({
    addresses: parameters.has("address") ? parameters.getAll("address") : ["http://127.0.0.1:8080"],
    db: "shop", coll: "orders",
    onReconnect: (reason) => console.info("reconnecting:", reason),
    onError: (error) => alert(error instanceof StreamerError ? `${error.message}. ${error.remedy}` : error),
  }),
);

function Shop() {
  const [status, setStatus] = useState("paid");
  const { data: all, isLoading } = useLiveQuery({ queryKey: ["orders"], query: (q) => q.from({ order: orders }) });
  const { data: shown } = useLiveQuery({
    queryKey: ["orders", status],
    query: (q) => q.from({ order: orders }).where(({ order }) => eq(order.status, status)).orderBy(({ order }) => order.total, "desc"),
  });
  return (
    <>
      <h1>Orders</h1>
      <nav>
        {statuses.map((s) => (
          <button key={s} aria-pressed={s === status} onClick={() => setStatus(s)}>
            {s} <output>{all.filter((order) => order.status === s).length}</output>
          </button>
        ))}
      </nav>
      <p role="status">{isLoading ? "loading" : `${all.length} orders`}</p>
      <table>
        <tbody>
          {shown.map((order) => (
            <tr key={order.$key}>
              <td>{String(order._id)}</td>
              <td>{order.customer?.name}</td>
              <td>{order.total.toFixed(2)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

createRoot(document.querySelector("main")!).render(<StrictMode><Shop /></StrictMode>);
