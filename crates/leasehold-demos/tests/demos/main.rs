//! The demos, as users start them.

mod crawler;
mod escrow;
mod flash_sale;
mod invoices;
mod play;
mod recovery;
