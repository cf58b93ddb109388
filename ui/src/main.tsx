import "./design/fonts.css";
import "./design/tokens.css";
import "./design/base.css";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { makeQueryClient } from "./api/queryClient";
import { makeRouter } from "./app/routes";
import { Toasts } from "./design/Toasts/Toasts";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no element with the id root");

createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={makeQueryClient()}>
      <Toasts>
        <RouterProvider router={makeRouter()} />
      </Toasts>
    </QueryClientProvider>
  </StrictMode>,
);
