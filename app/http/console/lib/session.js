/** The key, kept in a variable of this page and nowhere else, and what it allows. */

class Session extends EventTarget {
  #key = "";
  #scopes = new Set();
  asksForKey = false;
  name = null;

  get key() {
    return this.#key;
  }

  get scopes() {
    return this.#scopes;
  }

  /** Use a key from now on; an empty one forgets it. */
  use(key) {
    this.#key = key;
  }

  /** Note what `GET /access` says. */
  allow(access) {
    this.asksForKey = access.asks_for_key ?? this.#key !== "";
    this.name = access.name ?? null;
    this.#scopes = new Set(access.scopes);
    this.dispatchEvent(new Event("change"));
  }

  /** Note that the server wants a key, or another one. */
  lock() {
    this.asksForKey = true;
    this.#scopes = new Set();
    this.dispatchEvent(new Event("change"));
  }

  /** Whether the key has one of some scopes; with none named, whether there is access at all. */
  can(...scopes) {
    if (this.#scopes.has("admin")) return true;
    return scopes.length === 0 ? this.#scopes.size > 0 : scopes.some((scope) => this.#scopes.has(scope));
  }
}

export const session = new Session();
