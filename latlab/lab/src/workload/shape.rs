//! The form of a request: its method, headers and body.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

/// Headers that latlab sets itself, depending on the body and the connection.
const OWN: [&str; 2] = ["content-length", "transfer-encoding"];
/// A large body takes memory for each request.
pub const LARGEST_BODY: usize = 16 << 20;

/// What all requests have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// `None`: GET, or POST if there is a body.
    pub method: Option<Method>,
    pub headers: Vec<Header>,
    #[serde(with = "as_text")]
    pub body: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method(String);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub name: String,
    pub value: String,
}

fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

impl Method {
    /// Case matters: methods are case-sensitive.
    pub fn parse(text: &str) -> Result<Method, String> {
        match text {
            "CONNECT" => Err("CONNECT asks a proxy for a tunnel, which has no replies".to_string()),
            text if is_token(text) => Ok(Method(text.to_string())),
            _ => Err("expected a method of HTTP, as in PUT".to_string()),
        }
    }
}

impl Header {
    /// `Name: value`
    pub fn parse(text: &str) -> Result<Header, String> {
        let Some((name, value)) = text.split_once(':').filter(|(name, _)| is_token(name)) else {
            return Err("expected a name and a value, as in 'Accept: text/html'".to_string());
        };
        if OWN.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(format!("{name} is set by latlab, from --body"));
        }
        let value = value.trim_matches([' ', '\t']);
        if value.chars().any(|char| char.is_control() && char != '\t') {
            return Err("a header has no control characters".to_string());
        }
        Ok(Header {
            name: name.to_string(),
            value: value.to_string(),
        })
    }
}

impl Shape {
    pub fn method(&self) -> &str {
        match (&self.method, &self.body) {
            (Some(method), _) => &method.0,
            (None, Some(_)) => "POST",
            (None, None) => "GET",
        }
    }

    /// Whether sending the request twice has the same effect as sending it once (RFC 9110, 9.2.2). Then a client
    /// may repeat it.
    pub fn is_idempotent(&self) -> bool {
        ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"].contains(&self.method())
    }

    pub fn replies_are_bodiless(&self) -> bool {
        self.method() == "HEAD"
    }

    pub fn has(&self, name: &str) -> bool {
        let mut headers = self.headers.iter();
        headers.any(|header| header.name.eq_ignore_ascii_case(name))
    }

    /// The body, shared by all connections.
    pub fn shared_body(&self) -> Rc<[u8]> {
        self.body.as_deref().unwrap_or_default().into()
    }
}

/// JSON has no bytes: each byte becomes the character with the same number.
mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = |bytes: &Vec<u8>| bytes.iter().map(|byte| char::from(*byte)).collect();
        let text: Option<String> = bytes.as_ref().map(text);
        text.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let byte = |char| u8::try_from(u32::from(char)).map_err(serde::de::Error::custom);
        text.map(|text| text.chars().map(byte).collect())
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_are_a_name_and_a_value() {
        let header = Header::parse("X-Time:  12:30 ").unwrap();
        assert_eq!(
            (header.name.as_str(), header.value.as_str()),
            ("X-Time", "12:30")
        );
        assert_eq!(Header::parse("X-Empty:").unwrap().value, "");
        for wrong in ["X", ": a", "a b: c", "a: b\r\nc: d", "content-length: 3"] {
            assert!(Header::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn methods_are_tokens() {
        assert!(Method::parse("PURGE").is_ok());
        for wrong in ["", "G ET", "GET\r\n", "CONNECT"] {
            assert!(Method::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn with_a_body_it_is_a_post() {
        let mut shape = Shape {
            body: Some(b"a".to_vec()),
            ..Shape::default()
        };
        assert_eq!((shape.method(), shape.is_idempotent()), ("POST", false));
        shape.method = Some(Method::parse("PUT").unwrap());
        assert_eq!((shape.method(), shape.is_idempotent()), ("PUT", true));
        assert_eq!(Shape::default().method(), "GET");
    }

    proptest! {
        #[test]
        fn any_body_is_told_to_generator_processes(body: Option<Vec<u8>>) {
            let shape = Shape { body, ..Shape::default() };
            let text = serde_json::to_string(&shape).unwrap();
            prop_assert_eq!(serde_json::from_str::<Shape>(&text).unwrap(), shape);
        }
    }
}
