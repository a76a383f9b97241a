/** Everything that there is to import; index.d.ts has the types and says what each of it does. */
export { Spillway } from "./src/spillway.js";
export {
  ApiError,
  AuthenticationError,
  ConflictError,
  ConnectionError,
  InvalidRequestError,
  JobCancelledError,
  JobFailedError,
  NotFoundError,
  PermissionError,
  RateLimitedError,
  SpillwayError,
  TimeoutError,
  UnavailableError,
} from "./src/errors.js";
