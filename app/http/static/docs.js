"use strict";

// The key lives in a variable of this page: nothing is stored, and no other host gets it.
let key = "";

function withKey(request) {
  const target = new URL(request.url, window.location.href);
  if (key && target.origin === window.location.origin) {
    request.headers["Authorization"] = `Bearer ${key}`;
  }
  return request;
}

function show() {
  window.SwaggerUIBundle({
    url: new URL("openapi.json", window.location.href).href,
    dom_id: "#api",
    deepLinking: true,
    persistAuthorization: false,
    queryConfigEnabled: false,
    requestInterceptor: withKey,
    validatorUrl: null,
  });
}

document.getElementById("access").addEventListener("submit", (event) => {
  event.preventDefault();
  key = document.getElementById("key").value.trim();
  show();
});
show();
