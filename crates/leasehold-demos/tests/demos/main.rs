//! The demos, as users start them.

mod crawler;
mod demo_run;
mod designs;
mod escrow;
mod flash_sale;
mod invoices;
mod leftovers;
mod postgres;
mod recovery;
mod show;
mod stage;
