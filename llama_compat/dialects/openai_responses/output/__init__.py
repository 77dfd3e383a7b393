"""What a response says, whole or as events: vocabulary -> wire."""
