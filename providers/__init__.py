"""The first floor: where answers come from, in this process or at a vendor's."""
