//! Enums whose variants have a stable code, for metrics, logs and JSON, and a meaning: one row each.

#[macro_export]
macro_rules! code_table {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $($(#[$variant_meta:meta])* $variant:ident, $code:literal $(, $doc:literal)?;)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$variant_meta])* $(#[doc = $doc])? $variant,)*
        }

        #[allow(dead_code, reason = "some tables are read only by their codes")]
        impl $name {
            /// Every variant, in the order of the table: `variant as usize` is its index.
            $vis const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Their codes, in the same order.
            $vis const CODES: &'static [&'static str] = &[$($code,)*];

            $vis fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            $vis fn doc(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc)?),)* }
            }
        }
    };
}
