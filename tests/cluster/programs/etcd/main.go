// Command etcd is the released etcd server, compiled from its module: the
// release has no main package that `go build` accepts from outside.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
