//! Who of a subscription's consumers gets which entry.
//!
//! A [`Dispatcher`] knows the consumers, their permits and what each has been given. It says what is to be read next,
//! assigns each entry that was read, and takes entries back when they are to be delivered again. It answers
//! [`Dispatcher::why`] nothing moves.
//!
//! Deliberately not here: acknowledgements and redelivery counts (`cursor` knows; the caller leaves out what is acked),
//! reading, sockets.
//!
//! Exclusive and Failover subscriptions have one active consumer and deliver in order; Shared ones deal entries out to
//! everyone in turn. Key_Shared ones give all entries of a key to one consumer, in order: an entry waits while another
//! consumer holds unacked entries of its slot, while others go on.
//!
//! Start reading at [`Dispatcher`].

mod consumer;
mod dispatcher;
mod replay;
mod slots;
mod why;

pub use consumer::{ConsumerId, ConsumerState, NewConsumer};
pub use dispatcher::{Assigned, Busy, Dispatcher, Kind, NextRead};
pub use why::Why;
