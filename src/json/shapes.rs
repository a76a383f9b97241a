//! How a type says what its JSON looks like. Each macro implements [`FromJson`](super::FromJson) and serde's `Deserialize`.

/// An object with these members. Those it does not know are ignored, so that an older version can read what a newer one
/// wrote; with `only` they are refused. Every member has to be there unless its type may be absent, or a value is given for
/// that; with `default` each may be left out, and is then as it is in the type's `Default`.
macro_rules! object {
    (only default $type:ident { $($field:ident),* $(,)? }) => {
        $crate::json::object!(@over $type { $($field),* } |fields, faults| {
            fields.only(&[$(stringify!($field)),*], faults);
        });
    };
    (default $type:ident { $($field:ident),* $(,)? }) => {
        $crate::json::object!(@over $type { $($field),* } |fields, faults| {});
    };
    (only $type:ident { $($field:ident),* $(,)? }) => {
        $crate::json::object!(@new $type { $($field),* } |fields, faults| {
            fields.only(&[$(stringify!($field)),*], faults);
        });
    };
    ($type:ident { $($field:ident $(as $name:literal)? $(= $default:expr)?),* $(,)? }) => {
        $crate::json::object!(@new $type { $($field $(as $name)? $(= $default)?),* } |fields, faults| {});
    };
    (@over $type:ident { $($field:ident),* } |$fields:ident, $faults:ident| $check:block) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                Self::read_over(Self::default(), json, faults)
            }

            fn read_over(
                default: Self,
                json: $crate::json::Json<'_>,
                $faults: &mut $crate::json::Faults,
            ) -> Option<Self> {
                let $fields = json.fields($faults)?;
                $(let $field = $fields.read_over(default.$field, stringify!($field), $faults);)*
                $check
                Some(Self { $($field: $field?),* })
            }
        }
        $crate::json::object!(@serde $type);
    };
    (@new $type:ident { $($field:ident $(as $name:literal)? $(= $default:expr)?),* }
        |$fields:ident, $faults:ident| $check:block) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, $faults: &mut $crate::json::Faults) -> Option<Self> {
                let $fields = json.fields($faults)?;
                $(let $field = $crate::json::object!(@member $fields, $faults, $field $(as $name)? $(= $default)?);)*
                $check
                Some(Self { $($field: $field?),* })
            }
        }
        $crate::json::object!(@serde $type);
    };
    (@member $fields:ident, $faults:ident, $field:ident) => {
        $fields.read(stringify!($field), $faults)
    };
    (@member $fields:ident, $faults:ident, $field:ident = $default:expr) => {
        $fields.read_over($default, stringify!($field), $faults)
    };
    (@member $fields:ident, $faults:ident, $field:ident as $name:literal) => {
        $fields.read($name, $faults)
    };
    (@member $fields:ident, $faults:ident, $field:ident as $name:literal = $default:expr) => {
        $fields.read_over($default, $name, $faults)
    };
    (@serde $type:ident) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::json::read_any(deserializer)
            }
        }
    };
}

/// A string, which names one of the variants; `name` gives it, and serde writes it.
macro_rules! names {
    ($type:ident { $($variant:ident => $name:literal),* $(,)? }) => {
        impl $type {
            /// The stable name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                $crate::json::named(&[$(($name, Self::$variant)),*], json, faults)
            }
        }
        $crate::json::object!(@serde $type);

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}

/// One of several shapes, each by its name: a string for a variant without data, else an object with that one member.
macro_rules! choice {
    ($type:ident { $($name:literal => $variant:ident $(($inner:ident))? $({ $($field:ident),* })?),* $(,)? }) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                let (name, content) = json.choice();
                match name.as_ref() {
                    $($name => $crate::json::choice!(@shape $variant $(($inner))? $({ $($field),* })? content, faults),)*
                    _ => json.no_choice(&[$($name),*], faults),
                }
            }
        }
        $crate::json::object!(@serde $type);
    };
    (@shape $variant:ident $content:ident, $faults:ident) => {
        Some(Self::$variant)
    };
    (@shape $variant:ident ($inner:ident) $content:ident, $faults:ident) => {
        $crate::json::FromJson::read($content, $faults).map(Self::$variant)
    };
    (@shape $variant:ident { $($field:ident),* } $content:ident, $faults:ident) => {{
        let fields = $content.fields($faults)?;
        $(let $field = fields.read(stringify!($field), $faults);)*
        Some(Self::$variant { $($field: $field?),* })
    }};
}

/// The same JSON as its one field.
macro_rules! transparent {
    ($type:ident { $field:ident }) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                $crate::json::FromJson::read(json, faults).map(|$field| Self { $field })
            }
        }
        $crate::json::object!(@serde $type);
    };
    ($type:ident) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                $crate::json::FromJson::read(json, faults).map(Self)
            }
        }
        $crate::json::object!(@serde $type);
    };
}

pub(crate) use {choice, names, object, transparent};
