// Command storage is the dynamic provisioner behind the StorageClass `standard`:
// each claim becomes a folder of this machine, offered as a hostPath volume.
// All nodes of the local cluster are this machine, so ReadWriteMany holds. Size
// is recorded, never enforced. Claims of other classes are not looked at.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	askedOf       = "volume.kubernetes.io/storage-provisioner"
	resyncPeriod  = time.Minute
	callDeadline  = 15 * time.Second
)

// provisioner makes a folder and a volume for a claim, and removes both after it.
type provisioner struct {
	client  kubernetes.Interface
	name    string
	folder  string
	queue   workqueue.TypedRateLimitingInterface[string]
	claims  cache.Store
	volumes cache.Store
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "client configuration")
	folder := flag.String("folder", "", "where the volumes' folders are made")
	name := flag.String("provisioner", "rljob.dev/local-folder", "name that the StorageClass asks for")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *folder, *name); err != nil {
		slog.Error("storage ends", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, folder, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, resyncPeriod)
	claims := factory.Core().V1().PersistentVolumeClaims().Informer()
	volumes := factory.Core().V1().PersistentVolumes().Informer()
	made := &provisioner{
		client: client, name: name, folder: folder, claims: claims.GetStore(), volumes: volumes.GetStore(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	// Volumes have no namespace, so `claim/` and `volume/` tell the keys apart.
	watch := func(informer cache.SharedIndexInformer, kind string) error {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { made.enqueue(kind, object) },
			UpdateFunc: func(_, object any) { made.enqueue(kind, object) },
		})
		return err
	}
	if err := watch(claims, "claim"); err != nil {
		return err
	}
	if err := watch(volumes, "volume"); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	context.AfterFunc(ctx, made.queue.ShutDown)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for made.next(ctx) {
		}
	}, time.Second)
	return nil
}

func (p *provisioner) enqueue(kind string, object any) {
	if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
		p.queue.Add(kind + "/" + key)
	}
}

func (p *provisioner) next(ctx context.Context) bool {
	key, stopped := p.queue.Get()
	if stopped {
		return false
	}
	defer p.queue.Done(key)
	ctx, cancel := context.WithTimeout(ctx, callDeadline)
	defer cancel()
	if err := p.handle(ctx, key); err != nil {
		slog.Warn("will try again", "key", key, "error", err)
		p.queue.AddRateLimited(key)
		return true
	}
	p.queue.Forget(key)
	return true
}

func (p *provisioner) handle(ctx context.Context, key string) error {
	kind, name, _ := strings.Cut(key, "/")
	if kind == "claim" {
		if object, known, _ := p.claims.GetByKey(name); known {
			return p.provision(ctx, object.(*core.PersistentVolumeClaim))
		}
		return nil
	}
	if object, known, _ := p.volumes.GetByKey(name); known {
		return p.reclaim(ctx, object.(*core.PersistentVolume))
	}
	return nil
}

// provision answers a pending claim that asks for this provisioner. The volume
// is named after the claim's uid, so a second attempt finds the first.
func (p *provisioner) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || claim.Annotations[askedOf] != p.name {
		return nil
	}
	volume := "pvc-" + string(claim.UID)
	path := filepath.Join(p.folder, volume)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	// The umask took write access from others; a pod's user may be anyone.
	if err := os.Chmod(path, 0o777); err != nil {
		return err
	}
	kind := core.HostPathDirectory
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume, Annotations: map[string]string{provisionedBy: p.name}},
		Spec: core.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: path, Type: &kind}},
			ClaimRef: &core.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil && !errors.IsAlreadyExists(err) {
		return err
	}
	slog.Info("provisioned", "claim", claim.Namespace+"/"+claim.Name, "path", path)
	return nil
}

// reclaim removes the folder and then the volume of a claim that is gone. The
// path is computed again, never read from the object: no volume may name a
// folder outside ours to be deleted.
func (p *provisioner) reclaim(ctx context.Context, volume *core.PersistentVolume) error {
	if volume.Annotations[provisionedBy] != p.name || volume.Status.Phase != core.VolumeReleased ||
		volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
		return nil
	}
	path := filepath.Join(p.folder, volume.Name)
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("folder of volume %s: %w", volume.Name, err)
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &volume.UID},
	})
	if err != nil && !errors.IsNotFound(err) {
		return err
	}
	slog.Info("reclaimed", "volume", volume.Name)
	return nil
}
