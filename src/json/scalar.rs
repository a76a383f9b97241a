//! What the text of a string or of a number means, and a string as such a text.

use std::borrow::Cow;

/// `text` as a JSON string.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\0'..='\x1f' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The number that `text` is, without an exponent; exact up to fifteen digits. The standard parser is exact for all, by
/// tables that would be a tenth of the Worker.
#[must_use]
pub fn decimal(text: &str) -> Option<f64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let (mut value, mut unit) = (0.0, 1.0);
    for byte in whole.bytes() {
        value = value * 10.0 + digit(byte)?;
    }
    for byte in fraction.bytes() {
        (value, unit) = (value * 10.0 + digit(byte)?, unit * 10.0);
    }
    Some(sign * value / unit)
}

fn digit(byte: u8) -> Option<f64> {
    byte.is_ascii_digit().then(|| f64::from(byte - b'0'))
}

/// The string in `json`, whose syntax has been checked.
pub(super) fn unquote(json: &str) -> Option<Cow<'_, str>> {
    let mut rest = json.strip_prefix('"')?.strip_suffix('"')?;
    if !rest.contains('\\') {
        return Some(Cow::Borrowed(rest));
    }
    let mut text = String::with_capacity(rest.len());
    while let Some((plain, escape)) = rest.split_once('\\') {
        text.push_str(plain);
        let (kind, after) = escape.split_at_checked(1)?;
        rest = after;
        text.push(match kind {
            "n" => '\n',
            "r" => '\r',
            "t" => '\t',
            "b" => '\u{8}',
            "f" => '\u{c}',
            "u" => {
                let (unit, after) = code_unit(after)?;
                let low = after.strip_prefix("\\u").and_then(code_unit);
                let (code, after) = match (unit, low) {
                    (0xd800..=0xdbff, Some((low @ 0xdc00..=0xdfff, after))) => {
                        (0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00), after)
                    }
                    _ => (unit, after),
                };
                rest = after;
                char::from_u32(code)?
            }
            other => other.chars().next()?,
        });
    }
    text.push_str(rest);
    Some(Cow::Owned(text))
}

fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, after))
}

#[cfg(test)]
mod tests {
    use super::super::Json;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_are_exact_up_to_fifteen_digits() {
        for text in ["0", "-0", "3.0", "2.5", "-0.001", "0.1", "123456789.012345", "1.959964", "999999999999999"] {
            assert_eq!(decimal(text), text.parse().ok(), "{text}");
        }
        for text in ["", "-", ".", "1.", ".5", "1e3", "NaN", "inf", " 1", "+1"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_string_survives_its_json(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert_eq!(&quoted, &serde_json::to_string(&text).unwrap());
            prop_assert_eq!(Json::parse(&quoted).unwrap().string().unwrap(), text);
        }

        #[test]
        fn escapes_mean_what_they_mean_elsewhere(text in r#"(\\[ubnrt"/\\]|\\u[0-9a-fD][0-9a-f89D]{2}[0-9a-f]|[a-zé🦀]){0,6}"#) {
            let json = format!("\"{text}\"");
            let ours = Json::parse(&json).ok().and_then(Json::string).map(Cow::into_owned);
            prop_assert_eq!(ours, serde_json::from_str::<String>(&json).ok());
        }
    }
}
