// Command netpol enforces the NetworkPolicies of one node until it is ended.
//
// The verdicts are those of kube-network-policies, a project of Kubernetes'
// SIG Network, which judges the first packet of each connection in a queue of
// the kernel. Its own nftables rules need the kernel's expression `queue`,
// which small kernels lack: they are installed as one transaction, which then
// fails as a whole and is logged. The rule below reaches the same queue by the
// NFQUEUE target of xtables. Both are in one table, which is removed at the end.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "client configuration")
	node := flag.String("node", "", "node whose pods are protected")
	pods := flag.String("pods", "", "network of the pods")
	table := flag.String("table", "rljob-netpol", "nftables table of the rules")
	queue := flag.Int("queue", 100, "queue of the kernel")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config := networkpolicy.Config{NodeName: *node, NFTableName: *table, QueueID: *queue}
	if err := run(ctx, *kubeconfig, *pods, config); err != nil {
		slog.Error("netpol ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, pods string, config networkpolicy.Config) error {
	network, err := netip.ParsePrefix(pods)
	if err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	policies := factory.Networking().V1().NetworkPolicies()
	enforcer, err := networkpolicy.NewController(
		client, policies, core.Namespaces(), core.Pods(), nil, nil, nil, nil, config)
	if err != nil {
		return err
	}
	// Before the queue is opened: the rule lets packets pass until somebody reads them.
	if err := divert(config.NFTableName, network, uint16(config.QueueID)); err != nil {
		return fmt.Errorf("cannot install the rule: %w", err)
	}
	factory.Start(ctx.Done())
	return enforcer.Run(ctx)
}

// divert sends the first packet of each connection to a pod through the queue.
// Packets of the machine itself, such as the kubelet's probes, are not forwarded
// and so never meet it; policies allow them always.
func divert(name string, pods netip.Prefix, queue uint16) error {
	connection, err := nftables.New()
	if err != nil {
		return err
	}
	table := connection.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
	connection.FlushTable(table)
	chain := connection.AddChain(&nftables.Chain{
		Name: "forward", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter,
	})
	address := pods.Masked().Addr().As4()
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-pods.Bits()))
	isNew := binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW)
	connection.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4, DestRegister: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: address[:]},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: isNew, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Target{Name: "NFQUEUE", Rev: 3, Info: queueInfo(queue)},
	}})
	return connection.Flush()
}

// queueInfo returns struct xt_NFQ_info_v3 of linux/netfilter/xt_NFQUEUE.h, padded
// as xtables aligns it: one queue, and packets pass while nobody reads it.
func queueInfo(queue uint16) *xt.Unknown {
	const queues, bypass = 1, 1
	info := make(xt.Unknown, 8)
	for index, value := range []uint16{queue, queues, bypass} {
		binary.NativeEndian.PutUint16(info[2*index:], value)
	}
	return &info
}
