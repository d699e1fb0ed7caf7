//! JSON values of any form within a record, with a bound on their number. A value takes up to a hundred
//! times the memory of its text: an object with one field has 8 bytes of text and takes 600.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Maximum number of values in a value, itself included: they take at most 12 MiB. The plan of a load has
/// a few thousand.
pub const VALUES_MAX: usize = 32 * 1024;

/// Deserializes a value of at most [`VALUES_MAX`] values, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// It is malformed or has more values.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let mut values_left = VALUES_MAX;
    BoundedValue { values_left: &mut values_left }.deserialize(deserializer)
}

/// A value, and the number of values that may still follow.
struct BoundedValue<'a> {
    values_left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for BoundedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.values_left.checked_sub(1);
        *self.values_left =
            left.ok_or_else(|| D::Error::custom(format_args!("more than {VALUES_MAX} values")))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValue<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(BoundedValue { values_left: self.values_left })? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(BoundedValue { values_left: self.values_left })?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        deserialize(&mut serde_json::Deserializer::from_str(text))
    }

    #[test]
    fn a_value_is_the_same_as_without_a_bound() {
        for text in [
            "null",
            "true",
            "-5",
            "18446744073709551615",
            "0.5",
            "\"a\\nb\"",
            "[]",
            "{\"a\": [1, {\"b\": null}], \"c\": {}}",
        ] {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        assert!(read("[1").is_err());
    }

    #[test]
    fn the_number_of_values_is_bounded_in_any_form() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        assert!(read(&list("0", VALUES_MAX - 1)).is_ok());
        for bomb in [
            list("0", VALUES_MAX),
            list("[]", VALUES_MAX),
            list("{\"a\":0}", VALUES_MAX / 2),
            list(&list("[[]]", 10), VALUES_MAX / 20),
            format!("{{\"a\":{}}}", list("null", VALUES_MAX)),
        ] {
            let error = read(&bomb).unwrap_err().to_string();
            assert!(error.contains("more than 32768 values"), "{error}");
        }
    }
}
