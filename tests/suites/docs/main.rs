//! The documentation against the program: configurations in it load, command lines parse, those of the guide run, nothing of the language or the
//! command line is left out, each key has one place and is found from the index, links lead somewhere.

mod commands;
mod configurations;
mod examples;
mod guide;
mod keys;
mod library;
mod links;
mod markdown;
mod models;
mod options;
mod program;
