//! Every rule of the verdict, fired and not fired.
