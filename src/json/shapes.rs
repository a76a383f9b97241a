//! How a type says what its JSON looks like. Each macro implements [`FromJson`](super::FromJson), [`ToJson`](super::ToJson)
//! and serde's traits; `output` is for what is only written.

/// An object with these members. Those it does not know are ignored, so that an older version can read what a newer one
/// wrote; with `only` they are refused. Every member has to be there unless its type may be absent, or a value is given for
/// that; with `default` each may be left out, and is then as it is in the type's `Default`. What may be absent, or has the
/// value given, is left out when it is written.
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
        $crate::json::output!(sparse $type { $($field),* });
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
        $crate::json::output!(sparse $type { $($field $(as $name)? $(= $default)?),* });
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

/// An object that is only written; with `sparse` without the members that are absent.
macro_rules! output {
    (sparse $type:ty { $($field:ident $(as $name:literal)? $(= $default:expr)?),* $(,)? }) => {
        $crate::json::output!(@write $type, write_sparse_object { $($field $(as $name)? $(= $default)?),* });
    };
    ($type:ty { $($field:ident $(as $name:literal)?),* $(,)? }) => {
        $crate::json::output!(@write $type, write_object { $($field $(as $name)?),* });
    };
    (@write $type:ty, $write:ident { $($field:ident $(as $name:literal)? $(= $default:expr)?),* }) => {
        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                $crate::json::$write(
                    &[$((
                        $crate::json::output!(@name $field $($name)?),
                        $crate::json::output!(@value self.$field $(, $default)?),
                    )),*],
                    out,
                );
            }
        }
        $crate::json::output!(@serde $type);
    };
    (@name $field:ident) => { stringify!($field).trim_start_matches("r#") };
    (@name $field:ident $name:literal) => { $name };
    (@value $this:ident.$field:ident) => { &$this.$field };
    (@value $this:ident.$field:ident, $default:expr) => {
        &($this.$field != $default).then_some(&$this.$field)
    };
    (@serde $type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::json::write_any(self, serializer)
            }
        }
    };
}

/// A string, which names one of the variants; `name` gives it.
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

        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                $crate::json::ToJson::write(self.name(), out);
            }
        }
        $crate::json::output!(@serde $type);
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

        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                match self {
                    $(Self::$variant $(($inner))? $({ $($field),* })? => {
                        $crate::json::choice!(@write $name, $(($inner))? $({ $($field),* })? out)
                    })*
                }
            }
        }
        $crate::json::output!(@serde $type);
    };
    (@write $name:literal, $out:ident) => {
        $crate::json::ToJson::write($name, $out)
    };
    (@write $name:literal, ($inner:ident) $out:ident) => {
        $crate::json::write_object(&[($name, $inner)], $out)
    };
    (@write $name:literal, { $($field:ident),* } $out:ident) => {{
        let mut content = String::new();
        $crate::json::write_sparse_object(&[$((stringify!($field), $field)),*], &mut content);
        $crate::json::write_object(&[($name, &$crate::json::Text::new(content))], $out)
    }};
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

        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                $crate::json::ToJson::write(&self.$field, out);
            }
        }
        $crate::json::output!(@serde $type);
        $crate::json::object!(@serde $type);
    };
    ($type:ident) => {
        impl $crate::json::FromJson for $type {
            fn read(json: $crate::json::Json<'_>, faults: &mut $crate::json::Faults) -> Option<Self> {
                $crate::json::FromJson::read(json, faults).map(Self)
            }
        }

        impl $crate::json::ToJson for $type {
            fn write(&self, out: &mut String) {
                $crate::json::ToJson::write(&self.0, out);
            }
        }
        $crate::json::output!(@serde $type);
        $crate::json::object!(@serde $type);
    };
}

pub(crate) use {choice, names, object, output, transparent};
