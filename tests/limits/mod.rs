//! Limits hold for each call, and values of any size are refused or do what they say.

mod definitions;
