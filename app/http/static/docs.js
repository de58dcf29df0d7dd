"use strict";

// The key lives in a variable of this page: nothing is stored, and no other host gets it.
let key = "";

// "Authorize" sets headers itself; the key of this page is for the OpenAPI document, which is loaded first.
function withKey(request) {
  const target = new URL(request.url, window.location.href);
  const headers = Object.keys(request.headers).map((name) => name.toLowerCase());
  const hasKey = headers.includes("authorization") || headers.includes("x-api-key");
  if (key && !hasKey && target.origin === window.location.origin) {
    request.headers["Authorization"] = `Bearer ${key}`;
  }
  return request;
}

function show() {
  const page = window.SwaggerUIBundle({
    url: new URL(document.getElementById("document").value, window.location.href).href,
    dom_id: "#api",
    deepLinking: true,
    onComplete: () => {
      if (key) {
        page.preauthorizeApiKey("bearer", key);
      }
    },
    persistAuthorization: false,
    queryConfigEnabled: false,
    requestInterceptor: withKey,
    validatorUrl: null,
  });
}

document.getElementById("document").addEventListener("change", show);
document.getElementById("access").addEventListener("submit", (event) => {
  event.preventDefault();
  key = document.getElementById("key").value.trim();
  show();
});
show();
