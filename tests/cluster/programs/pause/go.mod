module rljob.dev/tests/cluster/programs/pause

go 1.26
