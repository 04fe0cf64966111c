"""Tables of the documents, each made from the JSON files in results/ and from nothing else."""
