// SPDX-License-Identifier: GPL-2.0-or-later
// Calls of the REST API with the session's cookie and CSRF token.

export class ApiProblem extends Error {
  constructor(body, status) {
    super(body.detail || body.title || `The server answered ${status}.`);
    this.status = status;
    this.body = body;
  }
}

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
    location.assign(`/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  const text = await response.text();
  if (!response.ok) throw new ApiProblem(decoded(text, response.status) ?? {}, response.status);
  return { text, status: response.status };
}

export async function call(method, path, body) {
  const { text, status } = await send(method, `/api/v1${path}`, body);
  return decoded(text, status);
}

// A part of a page, as the server draws it.
export async function part(path) {
  return (await send("GET", `/parts${path}`)).text;
}

export const path = (...parts) => `/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
