/** Reading a request's body: hashed as it arrives, kept up to what the API takes, and never more than a bound. */
/** The API's limit on a request. */
export const LARGEST_BODY = 32 * 1024 * 1024;

// A client that sends more than this is cut off.
const LARGEST_READ = 256 * 1024 * 1024;

/** The body; `bytes` is null when it is over the limit. Null if the client left before it was whole. */
export function readBody(request, hash, { largest = LARGEST_BODY } = {}) {
  return new Promise((resolve) => {
    let parts = [];
    let size = 0;
    request.on("data", (part) => {
      hash.update(part);
      size += part.length;
      if (size <= largest) parts.push(part);
      else parts = [];
      if (size > LARGEST_READ) request.destroy();
    });
    request.on("end", () => {
      const bytes = size <= largest ? Buffer.concat(parts) : null;
      resolve({ bytes, size, sha256: hash.digest("hex") });
    });
    request.on("error", () => resolve(null));
    request.on("close", () => resolve(null));
  });
}
