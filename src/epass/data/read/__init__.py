"""What reads: files, archives, tables, arrays and the owners' formats, to uint8 tensors."""
