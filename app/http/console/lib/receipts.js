/** Receipts and the ledger, read from the server. */

import { api } from "./api.js";
import { Chain } from "./chain.js";

const ENTRIES = 1000;

/** The key of a receipt's check: its whole content, so two receipts are never confused. */
export const contentOf = (receipt) => JSON.stringify(receipt);

/** The server's ledger and keys, for `checkReceipt`. Checked entries are not read again, unless something was wrong. */
export class Source {
  #chain = new Chain();
  #reading = null;
  #limit = ENTRIES;
  #signal;

  constructor(signal) {
    this.#signal = signal;
  }

  /** Return the public keys. */
  async keys() {
    return (await api.get("/ledger/keys", { signal: this.#signal })).keys;
  }

  /** Check the ledger up to its newest entry and return its chain; `CheckError` when something does not hold. */
  chain(report = () => {}) {
    this.#reading ??= this.#read(report).finally(() => (this.#reading = null));
    return this.#reading;
  }

  async #read(report) {
    const chain = this.#chain;
    try {
      for (let more = true; more; ) {
        const page = await this.#page(chain.head.index);
        await chain.take(page.entries);
        report(chain.head.index);
        more = page.next !== null;
      }
      return chain;
    } catch (error) {
      this.#chain = new Chain();
      throw error;
    }
  }

  async #page(index) {
    const query = { cursor: index || null, limit: this.#limit };
    try {
      return await api.get("/ledger", { query, signal: this.#signal });
    } catch (error) {
      if (error.status !== 422 || this.#limit === null) throw error;
      this.#limit = null; // the server was told to make shorter pages
      return this.#page(index);
    }
  }
}
