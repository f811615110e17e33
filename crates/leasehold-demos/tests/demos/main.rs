//! The demos, as users start them.

mod crawler;
mod demo_run;
mod escrow;
mod flash_sale;
mod invoices;
mod recovery;
