/** The key, kept in a variable of this page and nowhere else, and what it allows. */

class Session extends EventTarget {
  #key = "";
  #scopes = new Set();
  name = null;
  /** Why the last key is not used any more: `unknown` to the server, or `ended` after it was used; null while nothing is wrong. */
  refused = null;

  get key() {
    return this.#key;
  }

  get scopes() {
    return this.#scopes;
  }

  /** Use a key from now on; an empty one forgets it. */
  use(key) {
    this.#key = key;
    this.refused = null;
  }

  /** Note what `GET /access` says. */
  allow(access) {
    this.name = access.name ?? null;
    this.#scopes = new Set(access.scopes);
    this.dispatchEvent(new Event("change"));
  }

  /** Note that the server wants a key, or another one than this, which is no longer sent. */
  lock(key) {
    if (key !== this.#key) return; // another key is in use now
    if (key) this.refused = this.#scopes.size ? "ended" : "unknown";
    this.#key = "";
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
