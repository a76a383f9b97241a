//! A request's address, taken apart: its origin and the parameters of its query.
//!
//! The runtime has parsed and normalised it before, so that a few splits are enough; a parser with all of a browser's rules, and
//! its tables for the names of the world's domains, would be a twentieth of the Worker.

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address<'a> {
    /// Scheme, host and port: what the deployment's own links begin with.
    pub origin: &'a str,
    /// The rest of it, up to a fragment.
    pub path_and_query: &'a str,
    query: &'a str,
}

impl<'a> Address<'a> {
    /// The parts of an absolute address.
    #[must_use]
    pub fn of(url: &'a str) -> Self {
        let url = url.split('#').next().unwrap_or_default();
        let (rest, query) = url.split_once('?').unwrap_or((url, ""));
        let host_at = rest.find("://").map_or(0, |at| at + 3);
        let path_at = rest.get(host_at..).and_then(|host| host.find('/')).map_or(rest.len(), |at| host_at + at);
        let (origin, path_and_query) = url.split_at_checked(path_at).unwrap_or((url, ""));
        Self { origin, path_and_query, query }
    }

    /// The first parameter called `name`, as it was written: none of ours needs escaping.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Every parameter with its name, as they were written.
    pub fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty());
        pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_origin_and_parameters() {
        for (url, origin, wait) in [
            ("https://a.example/v1/jobs/x?wait=5", "https://a.example", Some("5")),
            ("http://127.0.0.1:8787/v1/jobs/x?a=b&wait=60&wait=1#wait=2", "http://127.0.0.1:8787", Some("60")),
            ("https://a.example/?wait", "https://a.example", Some("")),
            ("https://a.example/wait=5?await=1", "https://a.example", None),
            ("https://a.example", "https://a.example", None),
            ("https://a.example?next=https://b.example/", "https://a.example", None),
            ("/v1/jobs?wait=1", "", Some("1")),
            ("", "", None),
        ] {
            let address = Address::of(url);
            assert_eq!((address.origin, address.parameter("wait")), (origin, wait), "{url}");
            let whole = format!("{origin}{}", address.path_and_query);
            assert_eq!(Some(whole.as_str()), url.split('#').next());
        }
    }
}
