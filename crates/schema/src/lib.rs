//! Schemas of topics: which types there are, when two schemas are the same, how versions are numbered, and what comes
//! of one that a client or an operator brings.
//!
//! A [`Schema`] is a checked definition. It comes from the wire ([`offered`]), from REST ([`Schema::new`] with a
//! [`SchemaType`] by its name) or from storage ([`Schema::of_stored`]). [`decide`] says what becomes of it on a topic
//! whose versions are known.
//!
//! Deliberately not here: where versions are kept (`records` knows the form, `broker` reads and writes it), and whether
//! two schemas that differ are compatible: that is not in this version, so a different one is refused.
//!
//! Start reading at [`decide`].

mod decision;
mod definition;
mod key_value;
mod schema_type;
mod version;

pub use decision::{Bearer, Decision, Incompatible, decide};
pub use definition::{InvalidSchema, Offered, Schema, offered};
pub use key_value::{key_value_from_json, key_value_to_json};
pub use schema_type::SchemaType;
pub use version::{version_bytes, version_of_bytes};
