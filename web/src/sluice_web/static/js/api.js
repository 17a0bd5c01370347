// SPDX-License-Identifier: GPL-2.0-or-later
// Requests to this page's server, with the session's cookie and CSRF token.

export class ApiProblem extends Error {
  constructor(body, status) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

// The path below which a reverse proxy has the page. Every address begins with it.
export const base = document.body.dataset.base;
const token = document.querySelector("meta[name=csrf-token]")?.content ?? "";

function decoded(text, status) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    throw new ApiProblem({ detail: "The server's answer is not JSON; reload the page." }, status);
  }
}

async function send(method, address, body) {
  const headers = { Accept: "application/json", "X-CSRF-Token": token };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    const made = method === "GET" ? "" : " The change may have been made; look before you repeat it.";
    throw new ApiProblem({ detail: `This page's server does not answer.${made} Try again when the connection is back.` }, 0);
  }
  if (response.status === 401) {
    location.assign(`${base}/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const text = await response.text();
  if (!response.ok) throw new ApiProblem(decoded(text, response.status) ?? {}, response.status);
  return { text, status: response.status };
}

export async function call(method, path, body) {
  const { text, status } = await send(method, `${base}/api/v1${path}`, body);
  return decoded(text, status);
}

// A page, as the server words it now.
export async function page(address) {
  return new DOMParser().parseFromString((await send("GET", address)).text, "text/html");
}

export const path = (...parts) => `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
