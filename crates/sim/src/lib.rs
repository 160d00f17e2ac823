//! Simulations: the real machines and the real store on simulated disks, with faults chosen by seed, checked against
//! naive models.
//!
//! Deliberately not here: tests of single functions, and anything that needs real time, sockets or files. One module is
//! one simulation; the binary `geminga-sim` has one sub-command for each. A seed determines everything a run does, so a
//! failure is repeated by its seed.
//!
//! Start reading at [`crash`] and [`ledger`].

mod counts;
pub mod crash;
pub mod ledger;
