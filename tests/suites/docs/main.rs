//! The documentation against the program: configurations in it load, command lines parse, nothing of the language or the
//! command line is left out, links lead somewhere.

mod commands;
mod configurations;
mod library;
mod links;
mod markdown;
mod models;
mod options;
