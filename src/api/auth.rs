//! Who is calling.
//!
//! Clients have named keys, so that one never sees another's jobs; a name may appear twice, for rotation. The operator has
//! one key of its own. With no keys configured everything is refused: an open relay to a paid API is no default.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::error::{ApiError, ErrorKind};
use crate::json;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// An app, by its name.
    Client(String),
    /// Whoever runs this deployment.
    Operator,
    /// Somebody with the read token of the job that is asked for ([`super::read_token`]).
    Reader,
}

json::choice!(Caller {
    "reader" => Reader,
    "client" => Client(name),
    "operator" => Operator,
});

impl Caller {
    /// Whether this caller may see and end a job of `client`.
    #[must_use]
    pub fn may_see(&self, client: &str) -> bool {
        match self {
            Self::Client(name) => name == client,
            Self::Operator | Self::Reader => true,
        }
    }

    /// Refuses everybody but the operator.
    ///
    /// # Errors
    /// 403.
    pub fn check_operator(&self) -> Result<(), ApiError> {
        match self {
            Self::Operator => Ok(()),
            Self::Client(_) | Self::Reader => {
                Err(ApiError::new(ErrorKind::Permission, "this is the operator's: use the ADMIN_KEY"))
            }
        }
    }
}

/// The keys of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    clients: Vec<(String, [u8; 32])>,
    operator: Option<[u8; 32]>,
}

impl Keys {
    /// From `CLIENT_KEYS` (`name:key` pairs, comma-separated) and `ADMIN_KEY`.
    ///
    /// # Errors
    /// What is wrong with `CLIENT_KEYS`, never with the keys themselves in it.
    pub fn parse(client_keys: Option<&str>, admin_key: Option<&str>) -> Result<Self, String> {
        let operator = admin_key.map(str::trim).filter(|key| !key.is_empty()).map(digest);
        let mut clients: Vec<(String, [u8; 32])> = Vec::new();
        let pairs = client_keys.unwrap_or_default().split(',').map(str::trim);
        for (index, pair) in pairs.enumerate().filter(|(_, pair)| !pair.is_empty()) {
            let wrong = |what: &str| Err(format!("pair {} {what}", index + 1));
            let (name, key) = match pair.split_once(':').map(|(name, key)| (name.trim(), key.trim())) {
                Some((name, key)) if is_name(name) && !key.is_empty() => (name, digest(key)),
                _ => return wrong("is not `name:key` with a name of letters, digits, - and _"),
            };
            // A key says who is calling: one that says two things would mix two tenants.
            if operator == Some(key) {
                return wrong("has the key of ADMIN_KEY");
            }
            if clients.iter().any(|(other, known)| *known == key && other != name) {
                return wrong("has another client's key");
            }
            clients.push((name.to_owned(), key));
        }
        Ok(Self { clients, operator })
    }

    /// Whether any client can submit at all.
    #[must_use]
    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The clients' names; one that has two keys comes twice.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        self.clients.iter().map(|(name, _)| name.as_str())
    }

    /// Whether the operator has a key.
    #[must_use]
    pub const fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// Who is calling, from the `authorization` or the `x-api-key` header.
    ///
    /// # Errors
    /// 401, saying what to send or to configure.
    pub fn authenticate(&self, authorization: Option<&str>, x_api_key: Option<&str>) -> Result<Caller, ApiError> {
        let refused = |message: &str| Err(ApiError::new(ErrorKind::Authentication, message));
        if !self.has_clients() && !self.has_operator() {
            return refused("this deployment has no keys yet: set the secret CLIENT_KEYS to name:key pairs");
        }
        let Some(key) = credential(authorization, x_api_key) else {
            return refused("send a client key as `Authorization: Bearer KEY` or `x-api-key: KEY`");
        };
        // Digests of equal length, each compared in constant time, and all of them: how long it takes says nothing.
        let digest = digest(key);
        let mut caller = None;
        for (name, known) in &self.clients {
            if bool::from(known.ct_eq(&digest)) {
                caller = Some(Caller::Client(name.clone()));
            }
        }
        if self.operator.is_some_and(|known| bool::from(known.ct_eq(&digest))) {
            caller = Some(Caller::Operator);
        }
        caller.map_or_else(|| refused("this key is not known here"), Ok)
    }
}

/// What a request says who it is from.
#[must_use]
pub fn credential<'a>(authorization: Option<&'a str>, x_api_key: Option<&'a str>) -> Option<&'a str> {
    let bearer = authorization.and_then(|value| {
        let (scheme, token) = value.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    bearer.or(x_api_key.map(str::trim)).filter(|key| !key.is_empty())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::parse(Some("app:k1, app:k2 ,web:k:3,"), Some("root")).unwrap()
    }

    #[test]
    fn a_key_names_its_client_and_both_headers_carry_it() {
        let client = |name: &str| Ok(Caller::Client(name.to_owned()));
        assert_eq!(keys().authenticate(Some("Bearer k1"), None), client("app"));
        assert_eq!(keys().authenticate(Some("bearer  k2"), None), client("app"));
        assert_eq!(keys().authenticate(None, Some("k:3")), client("web"));
        assert_eq!(keys().authenticate(None, Some("root")), Ok(Caller::Operator));
    }

    #[test]
    fn the_operators_routes_are_no_clients() {
        assert_eq!(Caller::Operator.check_operator(), Ok(()));
        let refused = Caller::Client("operator".into()).check_operator();
        assert_eq!(refused.map_err(|error| error.kind.status()), Err(403));
    }

    #[test]
    fn missing_unknown_and_unconfigured_keys_are_refused_and_say_what_to_do() {
        let message = |keys: &Keys, authorization, x| keys.authenticate(authorization, x).unwrap_err().message;
        assert!(message(&keys(), None, None).contains("send a client key"));
        assert!(message(&keys(), Some("Basic k1"), None).contains("send a client key"));
        assert!(message(&keys(), None, Some("k")).contains("not known"));
        assert!(message(&Keys::default(), None, Some("k1")).contains("CLIENT_KEYS"));
    }

    #[test]
    fn a_key_that_would_say_two_things_is_refused() {
        let fault = |clients, admin| Keys::parse(Some(clients), admin).unwrap_err();
        assert_eq!(fault("app:k1,bob:k1", None), "pair 2 has another client's key");
        assert_eq!(fault("app:k1", Some("k1")), "pair 1 has the key of ADMIN_KEY");
        assert!(Keys::parse(Some("app:k1,app:k1"), Some("k2")).is_ok());
    }

    #[test]
    fn a_pair_without_name_or_key_is_named_by_its_place_and_not_shown() {
        for text in ["app:k1,secret", ":k", "app:", "a b:k"] {
            let error = Keys::parse(Some(text), None).unwrap_err();
            assert!(error.starts_with("pair ") && !error.contains("secret"), "{text}: {error}");
        }
    }
}
